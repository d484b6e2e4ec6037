"""`ikebana prepare`: what makes later starts faster, made once for a machine."""

import os

import click

from ikebana.arrangements.errors import SparkStartError


@click.command("prepare")
def prepare_command() -> None:
    """Make an archive of the classes of Spark's JVM, from which `run` then starts it.

    It takes half a minute of CPU time and 180 MB in the cache folder, and is
    made again only for another Java, another Spark or another ikebana.
    """
    from ikebana.processor.ground.java import find_java
    from ikebana.processor.spark import class_archive
    from ikebana.processor.spark.child_processes import kill_session

    java = find_java(os.environ)
    archive = class_archive.path_for(java)
    if archive.exists():
        click.echo(f"{archive} is there already")
        return
    click.echo("making an archive of the classes of Spark's JVM, once")
    making = class_archive.making(java)
    try:
        status = making.wait()
    except BaseException:
        kill_session(making)
        raise
    if status:
        raise SparkStartError(
            f"could not make {archive}: java ended with status {status}",
            hint="`ikebana run` works without it. It needs 400 MB of room in the cache folder.",
        )
    click.echo(f"{archive} is there: `ikebana run` uses it")
