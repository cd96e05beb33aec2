"""``python -m collage_evo``."""

from collage_evo.cli import main

if __name__ == "__main__":
    main()
