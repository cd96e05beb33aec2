"""``python -m collage_evo``."""

import sys


def run() -> None:
    """Run the command line, or print what to install: running an artifact needs fewer packages than making one."""
    try:
        from collage_evo.cli import main

        main()
    except ModuleNotFoundError as error:
        if "--debug" in sys.argv:
            raise
        from collage_evo.extras import install

        print(f"error: {error.name} is missing: {install('search')}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    run()
