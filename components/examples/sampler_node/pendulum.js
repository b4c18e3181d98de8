// The environment: Gymnasium's Pendulum-v1. Write your own in its place.
"use strict";

module.exports = class Pendulum {
  static obsSize = 3;
  static actionSize = 1;

  /** Begins an episode, drawn with `uniform()` in [0, 1); returns the observation. */
  reset(uniform) {
    [this.angle, this.speed] = [Math.PI * (2 * uniform() - 1), 2 * uniform() - 1];
    return this.observe();
  }

  /** Steps by an action within its bounds; the time limit of episodes is the sampler's affair. */
  step([torque]) {
    const upright = this.angle - 2 * Math.PI * Math.floor((this.angle + Math.PI) / (2 * Math.PI));
    const reward = -(upright ** 2 + 0.1 * this.speed ** 2 + 0.001 * torque ** 2);
    const faster = this.speed + (15 * Math.sin(this.angle) + 3 * torque) * 0.05;
    this.speed = Math.min(Math.max(faster, -8), 8);
    this.angle += 0.05 * this.speed;
    return { obs: this.observe(), reward, terminated: false };
  }

  observe() {
    return [Math.cos(this.angle), Math.sin(this.angle), this.speed];
  }
};
