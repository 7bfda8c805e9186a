"""Ports to clock, disk and threads, timers, slices of long work, and health."""
