"""The command line: commands, configuration and environment, nothing else."""
