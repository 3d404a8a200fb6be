"""Tools for the map that is open in QGIS: layers, attributes, a picture of it.

As a plug-in, over HTTP: copy this file as `__init__.py` and mcp_ref.py into a folder
python/plugins/mcp_server of your QGIS profile, with a file metadata.txt:

    [general]
    name=MCP server
    description=Lets a model look at the map
    version=1.0
    qgisMinimumVersion=3.16
    author=you
    email=you@example.org

and switch it on in Plugins > Manage. Hosts find it at http://127.0.0.1:8767/mcp
(QGIS_MCP_PORT sets another port).

Or the host starts QGIS without a window, on stdio:

    {"mcpServers": {"qgis": {"command": "python3",
        "args": ["/path/to/qgis_plugin.py", "project.qgz"]}}}

The project may only be touched on the main thread. A Qt signal gets a call there;
`QueuedConnection` makes it wait for the event loop, whoever sends it.
(QTimer.singleShot does not: from another thread, its call never comes.)
"""

# The application's own modules have no types.
# mypy: disable-error-code="import-not-found, import-untyped, misc, no-any-return"

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path
from typing import Any

from qgis.core import (
    QgsApplication,
    QgsFeatureRequest,
    QgsMapRendererSequentialJob,
    QgsMapSettings,
    QgsProject,
    QgsRectangle,
    QgsVectorLayer,
)
from qgis.PyQt.QtCore import QBuffer, QObject, QSize, Qt, pyqtSignal

# beside this file, or in a checkout
sys.path += [str(Path(__file__).resolve().parents[n]) for n in (0, 2)]
from mcp_ref import Endpoint, Server, http_server, image


def find(layer: str) -> Any:
    found = QgsProject.instance().mapLayersByName(layer)
    if not found:
        raise ValueError(f"there is no layer {layer}; list_layers knows what there is")
    return found[0]


def list_layers() -> list[dict[str, Any]]:
    """List the layers of the project: name, type, and how many features they have."""
    return [
        {
            "name": one.name(),
            "type": one.type().name,
            "crs": one.crs().authid(),
            "features": getattr(one, "featureCount", int)(),
        }
        for one in QgsProject.instance().mapLayers().values()
    ]


def add_layer(path: str, name: str) -> str:
    """Add a file of vector data, such as GeoJSON, as a layer."""
    layer = QgsVectorLayer(path, name, "ogr")
    if not layer.isValid():
        raise ValueError(f"QGIS cannot read {path}")
    QgsProject.instance().addMapLayer(layer)
    return f"{name} has {layer.featureCount()} features."


def read_attributes(
    layer: str, where: str = "", most: int = 20
) -> list[dict[str, Any]]:
    """Return attributes of features that match an expression, such as "area" > 10."""
    features = find(layer).getFeatures(QgsFeatureRequest().setFilterExpression(where))
    return [
        {name: plain(value) for name, value in one.attributeMap().items()}
        for one in itertools.islice(features, most)
    ]


def plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else str(value)


def draw_map(width: int = 640, height: int = 480) -> dict[str, Any]:
    """Draw all layers."""
    layers = list(QgsProject.instance().mapLayers().values())
    settings = QgsMapSettings()
    settings.setLayers(layers)
    settings.setOutputSize(QSize(width, height))
    extent = QgsRectangle()
    for layer in layers:
        settings.setDestinationCrs(layer.crs())
        extent.combineExtentWith(layer.extent())
    extent.scale(1.1)
    settings.setExtent(extent)
    job = QgsMapRendererSequentialJob(settings)
    job.start()
    job.waitForFinished()
    buffer = QBuffer()
    job.renderedImage().save(buffer, "PNG")
    return image(bytes(buffer.data()), "image/png")


def make_server(**options: Any) -> Server:
    server = Server("qgis", instructions="The project that is open.", **options)
    for function in (list_layers, add_layer, read_attributes, draw_map):
        server.tool(function)
    return server


class Plugin(QObject):
    """What QGIS switches on and off."""

    sent = pyqtSignal(object)

    def initGui(self) -> None:
        self.sent.connect(self.call, Qt.QueuedConnection)
        port = int(os.environ.get("QGIS_MCP_PORT", "8767"))
        self.httpd = http_server(Endpoint(make_server(run=self.sent.emit)), port=port)
        threading.Thread(target=self.httpd.serve_forever, daemon=True).start()

    def call(self, function: Any) -> None:
        function()

    def unload(self) -> None:
        self.httpd.close()


def classFactory(iface: Any) -> Plugin:
    return Plugin()


if __name__ == "__main__":
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    application = QgsApplication([], False)
    application.initQgis()
    if sys.argv[1:]:
        QgsProject.instance().read(sys.argv[1])
    make_server().run_here([])
    application.exitQgis()
