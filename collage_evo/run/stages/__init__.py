"""Stages of a run: functions of the run's context and the values of earlier stages."""
