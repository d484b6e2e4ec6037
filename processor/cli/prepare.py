"""`ikebana prepare`: make an archive of Spark's classes, for faster starts."""

import os

import click

from ikebana.errors import SparkStartError


@click.command("prepare")
@click.option(
    "--shared",
    is_flag=True,
    help="Put it beside the packages, for all users of this installation.",
)
def prepare_command(*, shared: bool) -> None:
    """Make an archive of the classes of Spark's JVM, so that `run` starts faster.

    \b
    ikebana prepare

    It takes half a minute of CPU time and 180 MB in the cache folder.  Another version of
    Java, Spark or ikebana needs another archive.
    """
    from ikebana.processor.base.machine import find_java
    from ikebana.processor.spark import class_archive
    from ikebana.processor.spark.child_processes import kill_session

    java = find_java(os.environ)
    archive = class_archive.path_for(java, class_archive.SHARED if shared else None)
    if archive.exists():
        click.echo(f"{archive} exists already")
        return
    click.echo("making an archive of the classes of Spark's JVM; this is done once")
    making = class_archive.start_making(java, archive)
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
    click.echo(f"made {archive}; `ikebana run` uses it")
