"""Tools for the scene that is open in Blender: list, add and move objects, and render.

As an add-on, over HTTP: copy mcp_ref.py into the folder scripts/addons/modules of
Blender's configuration, install this file in Edit > Preferences > Add-ons, and switch
it on. Hosts find it at http://127.0.0.1:8765/mcp (BLENDER_MCP_PORT sets another port).

Or the host starts Blender without a window, on stdio:

    {"mcpServers": {"blender": {"command": "blender", "args":
        ["-b", "scene.blend", "-P", "/path/to/blender_addon.py"]}}}

Blender's data may only be touched on its main thread. There a timer calls what the
server has put into a queue; `persistent` keeps it when a file is opened. (A timer for
each call loses those that wait while a file is opened.) Without a window there are no
timers: run_here() keeps the main thread.
"""

# The application's own modules have no types.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return"

from __future__ import annotations

import os
import queue
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Literal

import bmesh
import bpy

sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 2)]  # in a checkout
from mcp_ref import Endpoint, Server, http_server, image

bl_info = {
    "name": "MCP server",
    "description": "Lets a model look at the scene and change it",
    "blender": (3, 0, 0),
    "category": "System",
}
Vector = tuple[float, float, float]
SHAPES = {
    "cube": lambda mesh: bmesh.ops.create_cube(mesh, size=2),
    "sphere": lambda mesh: bmesh.ops.create_icosphere(mesh, subdivisions=4, radius=1),
    "cone": lambda mesh: bmesh.ops.create_cone(
        mesh, cap_ends=True, segments=32, radius1=1, radius2=0, depth=2
    ),
}


def list_objects() -> list[dict[str, Any]]:
    """List the objects of the scene: name, type, location and dimensions."""
    return [
        {
            "name": one.name,
            "type": one.type,
            "location": list(one.location),
            "dimensions": list(one.dimensions),
        }
        for one in bpy.context.scene.objects
    ]


def add_object(
    shape: Literal["cube", "sphere", "cone"], name: str, location: Vector = (0, 0, 0)
) -> str:
    """Add an object; each is 2 units in size. Returns its name, which is unique."""
    mesh = bpy.data.meshes.new(name)
    builder = bmesh.new()
    SHAPES[shape](builder)
    builder.to_mesh(mesh)
    builder.free()
    added = bpy.data.objects.new(name, mesh)
    added.location = location
    bpy.context.scene.collection.objects.link(added)
    return added.name


def move_object(name: str, location: Vector) -> str:
    """Move an object to a location."""
    bpy.data.objects[name].location = location
    return f"{name} is at {location}."


def render(width: int = 480, height: int = 270) -> dict[str, Any]:
    """Render the scene as the camera sees it."""
    settings = bpy.context.scene.render
    settings.resolution_x, settings.resolution_y = width, height
    settings.resolution_percentage = 100
    settings.image_settings.file_format = "PNG"
    with tempfile.TemporaryDirectory() as folder:
        settings.filepath = os.path.join(folder, "image.png")
        bpy.ops.render.render(write_still=True)
        return image(Path(settings.filepath).read_bytes(), "image/png")


def make_server(**options: Any) -> Server:
    server = Server("blender", instructions="The scene that is open.", **options)
    for function in (list_objects, add_object, move_object, render):
        server.tool(function)
    return server


waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()


def call_what_waits() -> float:
    """Called by Blender's timer; returns the seconds until the next time."""
    while not waiting.empty():
        waiting.get()()
    return 0.05


httpd: Any = None  # while the add-on is enabled


def register() -> None:
    global httpd
    bpy.app.timers.register(call_what_waits, persistent=True)
    port = int(os.environ.get("BLENDER_MCP_PORT", "8765"))
    httpd = http_server(Endpoint(make_server(run=waiting.put)), port=port)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()


def unregister() -> None:
    httpd.close()
    bpy.app.timers.unregister(call_what_waits)


if __name__ == "__main__":
    if bpy.app.background:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Blender's would do nothing here
        make_server().run_here([])
    else:
        register()
