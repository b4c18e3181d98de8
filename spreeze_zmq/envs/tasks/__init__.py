"""Gymnasium's environments as native tasks, with the same numbers as Gymnasium's."""

#: Gymnasium id -> (module of this package, class), by name so that nothing is imported here.
NATIVE = {
    "Ant-v5": ("legged", "Ant"),
    "CartPole-v1": ("classic", "CartPole"),
    "HalfCheetah-v5": ("runners", "HalfCheetah"),
    "Hopper-v5": ("runners", "Hopper"),
    "Humanoid-v5": ("legged", "Humanoid"),
    "HumanoidStandup-v5": ("legged", "HumanoidStandup"),
    "InvertedDoublePendulum-v5": ("fixed", "InvertedDoublePendulum"),
    "InvertedPendulum-v5": ("fixed", "InvertedPendulum"),
    "Pendulum-v1": ("classic", "Pendulum"),
    "Pusher-v5": ("fixed", "PusherArm"),
    "Reacher-v5": ("fixed", "Reacher"),
    "Swimmer-v5": ("runners", "Swimmer"),
    "Walker2d-v5": ("runners", "Walker2d"),
}
