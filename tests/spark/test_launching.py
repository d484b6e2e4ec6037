"""What spark-submit would run, and what is run in its place."""

import os
import subprocess

import pytest

from ikebana.processor.base.machine import find_java
from ikebana.processor.spark import jvm
from ikebana.processor.spark.class_archive import HOME
from support.waiting import patient

pytestmark = [pytest.mark.full, pytest.mark.spark]

# Its vectors are for linear algebra; the class path is the same jars in another order.
LEFT_OUT = {"--add-modules=jdk.incubator.vector", "-cp"}


def test_the_command_is_that_of_spark_submit() -> None:
    """But for modules that are not needed, and the order of the class path."""
    options = {
        "spark.master": "local[1]",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Dsaid=something",
    }
    java = find_java(os.environ)
    command, environment = jvm.command(options, java, os.environ)
    submit = command[command.index("org.apache.spark.deploy.SparkSubmit") :]
    jars = f"{HOME}/jars/*"
    printed = subprocess.run(
        [java, "-cp", jars, "org.apache.spark.launcher.Main", *submit],
        capture_output=True,
        check=True,
        env=environment,
        timeout=patient(60),
    ).stdout.decode()

    wanted = [part.strip() for part in printed.rstrip("\0\n").split("\0")]
    theirs = set(wanted[wanted.index("-cp") + 2 :]) - LEFT_OUT
    assert theirs <= set(command)
    assert wanted[-len(submit) :] == submit
