"""A function that has the name of the module it lies in is what a package offers under that name, as in Python."""

from typing import Any

import griffe


class FunctionsFirst(griffe.Extension):
    """Griffe has a package's submodules stand before what it imports from them; Python has the last one stand."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Put what `__all__` promises in the place of the submodule of its name."""
        for package in [pkg, *(module for module in _modules(pkg) if module.is_init_module)]:
            for name in package.exports or []:
                found = package.members.get(str(name))
                if isinstance(found, griffe.Module) and str(name) in found.members:
                    package.members[str(name)] = griffe.Alias(str(name), found.members[str(name)], parent=package)


def _modules(package: griffe.Module) -> list[griffe.Module]:
    below = [member for member in package.members.values() if isinstance(member, griffe.Module)]
    return [module for member in below for module in (member, *_modules(member))]
