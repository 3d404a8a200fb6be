"""Tools for the document that is open in FreeCAD: boxes, volumes, STEP files.

As a macro, over HTTP: copy this file and mcp_ref.py into the folder of macros (Macro >
Macros says which it is) and run it there. Run it again to stop it. Hosts find it at
http://127.0.0.1:8766/mcp (FREECAD_MCP_PORT sets another port).

Or the host starts FreeCAD without a window, on stdio:

    {"mcpServers": {"freecad": {"command": "freecadcmd",
        "args": ["/path/to/freecad_macro.py"]}}}

Documents may only be touched on FreeCAD's main thread. A Qt signal gets a call there;
`QueuedConnection` makes it wait for the event loop, whoever sends it. freecadcmd has no
event loop: run_here() keeps the main thread. (It imports this file, so `__name__` is
not "__main__".)
"""

# The application's own modules have no types.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return"

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import FreeCAD
import Part

# beside this file, or in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 2)]
from mcp_ref import Endpoint, Server, http_server


def document() -> Any:
    return FreeCAD.ActiveDocument or FreeCAD.newDocument("Model")


def find(name: str) -> Any:
    found = document().getObject(name)
    if found is None:
        raise ValueError(f"there is no {name}; list_objects knows what there is")
    return found


def list_objects() -> list[dict[str, str]]:
    """List what the document has: name, label and type."""
    return [
        {"name": one.Name, "label": one.Label, "type": one.TypeId}
        for one in document().Objects
    ]


def make_box(
    length: float, width: float, height: float, x: float = 0, y: float = 0, z: float = 0
) -> str:
    """Add a box, in millimetres; x, y, z is its corner. Returns its name."""
    box = document().addObject("Part::Box", "Box")
    box.Length, box.Width, box.Height = length, width, height
    box.Placement.Base = FreeCAD.Vector(x, y, z)
    document().recompute()
    return str(box.Name)


def cut(name: str, tool: str) -> str:
    """Cut one object out of another. Returns the name of what is left."""
    left = document().addObject("Part::Cut", "Cut")
    left.Base, left.Tool = find(name), find(tool)
    document().recompute()
    return str(left.Name)


def volume(name: str) -> float:
    """Return the volume of an object in cubic millimetres."""
    return float(find(name).Shape.Volume)


def export_step(path: str, names: list[str]) -> str:
    """Write objects to a STEP file."""
    Part.export([find(name) for name in names], path)
    return f"{path}: {os.path.getsize(path)} bytes"


def make_server(**options: Any) -> Server:
    server = Server("freecad", instructions="The active document.", **options)
    for function in (list_objects, make_box, cut, volume, export_step):
        server.tool(function)
    return server


def start() -> Any:
    """Serve over HTTP; return what stop() needs."""
    from PySide2.QtCore import QObject, Qt, Signal

    class Caller(QObject):
        """Calls what it is sent on the thread that made it."""

        sent = Signal(object)

        def __init__(self) -> None:
            super().__init__()
            self.sent.connect(self.call, Qt.QueuedConnection)

        def call(self, function: Any) -> None:
            function()

    caller = Caller()
    port = int(os.environ.get("FREECAD_MCP_PORT", "8766"))
    httpd = http_server(Endpoint(make_server(run=caller.sent.emit)), port=port)
    vars(httpd)["caller"] = caller  # it lives as long as the server
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    FreeCAD.Console.PrintMessage(f"MCP at http://127.0.0.1:{port}/mcp\n")
    return httpd


if not FreeCAD.GuiUp:
    make_server().run_here([])
elif getattr(FreeCAD, "mcp_server", None):
    FreeCAD.mcp_server.close()
    FreeCAD.mcp_server = None
else:
    FreeCAD.mcp_server = start()
