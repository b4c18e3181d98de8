"""A run whose batch this machine chooses, as a user starts it."""

import pytest

AUTO = ("algorithm.batch_size=auto", "algorithm.max_batch_size=256", "algorithm.reference_batch_size=64")
SETTINGS = (*AUTO, "components.sampler.count=1", "run.stop={env_steps=2000}")


@pytest.mark.timeout(120)
def test_a_run_measures_its_batch_once_and_says_so(launch, monkeypatch, tmp_path):
    """Choice, curve and scaling are in run.json, summary.json and the log; the second run begins at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = [word for setting in SETTINGS for word in ("--set", setting)]
    sources = []
    for _ in range(2):
        run = launch(*arguments)
        assert run.end() == 0, run.said()
        plan, auto = run.plan(), run.summary()["auto"]
        chosen = auto["batch_size"]["chosen"]
        assert chosen in (64, 128, 256)
        assert [size for size, _ in auto["batch_size"]["curve"]] == [64, 128, 256]
        assert plan["algorithm"]["batch_size"] == chosen
        assert plan["algorithm"]["learning_rate"] == pytest.approx(3e-3 * (chosen / 64) ** 0.5)
        assert plan["algorithm"]["tau"] == pytest.approx(1 - 0.98 ** (chosen / 64))
        assert (plan["to_measure"], plan["measured"]) == ([], auto)
        summary = run.summary()
        assert summary["trained_transitions"] == chosen * summary["critic_updates"] > 0
        log = (run.folder / "logs" / "critic_learner-0.log").read_text()
        for said in (log, run.output.read_text()):
            assert f"batch_size {chosen} trains" in said
            assert f"for {chosen / 64:g} times the batch of 64: learning_rate 0.003 x sqrt" in said
        sources.append(auto["source"])
        assert run.leftovers() == []
    assert sources[0].startswith("measured in")
    assert sources[1] == "as measured on this machine before"
