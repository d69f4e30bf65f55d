"""octavo is a native program; this package holds it, its libraries and its example configurations."""
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parent
PROGRAM = FOLDER / "bin" / "octavo"
CONFIGS = FOLDER / "share" / "configs"
