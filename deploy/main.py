"""The `ikebana` command, as the Python file that spark-submit needs in cluster mode."""

from ikebana.processor.cli.main import main

main()
