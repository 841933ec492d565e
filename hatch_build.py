"""Compile the native engine while the package is built; without a compiler the package is pure Python."""

import runpy
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeHook(BuildHookInterface):
    """Put the compiled libraries into the wheel, which is then for this platform, or leave a pure wheel."""

    def initialize(self, version, build_data):
        root = Path(self.root)
        build = runpy.run_path(str(root / "lrpe" / "native" / "build.py"))  # lrpe itself is not installed yet
        libraries, line = build["build"]()
        self.app.display_info(line)
        if libraries:
            build_data["artifacts"] += [f"/{path.relative_to(root).as_posix()}" for path in libraries]
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform_tag()}"


def _platform_tag() -> str:
    """Return this platform's tag: the library needs no Python, so one wheel serves every version."""
    import sysconfig

    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
