"""Builds the images of the installed methods: ``python docker/build.py [NAME ...] [--push REGISTRY]``.

It ends with the lines of a node's configuration that allow just these images. The package index of the environment
(PIP_INDEX_URL, PIP_EXTRA_INDEX_URL) is passed on to the build, and DOCKER_BUILD_NETWORK is its network unless --network
names one.
"""

import argparse
import sys

from v6_workbench.errors import EngineError
from v6_workbench.network import images, project


def main() -> int:
    listed = images.listed()
    parser = argparse.ArgumentParser(description="Build the images of the installed methods.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(listed)} (default: all)")
    parser.add_argument("--network", help="the engine's network for the build, such as host (default: the engine's)")
    parser.add_argument("--python", default=project.INSTALLED.python, help="the base image (default: %(default)s)")
    parser.add_argument("--push", metavar="REGISTRY", help="push the images there, such as registry.example/project")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in listed]
    if unknown:
        parser.error(f"no image is called {unknown[0]}; expected one of {', '.join(listed)}")
    names = options.names or list(listed)
    try:
        tags = [images.build_method(listed[name], network=options.network, python=options.python) for name in names]
        if options.push:
            names = [images.push(tag, f"{options.push}/{tag}") for tag in tags]
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    print("policies:", "  allowed_algorithms:", *(f"    - {images.allowed(name)}" for name in names), sep="\n")
    if not options.push:
        print(
            "These are names alone: an image has a digest, which a node can check, once a registry serves it (--push)."
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
