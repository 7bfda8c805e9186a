"""The ground everything stands on: ports to the world, timers, turns of the loop, health."""
