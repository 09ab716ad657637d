#!/usr/bin/env python3
"""What the programs are made of, as CycloneDX 1.5, and the licenses of it, of what `cargo metadata` and Cargo.lock say.

Usage: sbom.py METADATA TARGET VERSION FOLDER-OF-PROGRAMS SBOM LICENSES

Listed are the crates that are linked in, with everything that features of any of them turn on. What only builds or tests
is not. The same input gives the same output.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import sys
import tomllib
import uuid

ROOT = "strait"
LICENSE_FILE = re.compile(r"(?i)^(licen[cs]e|copying|notice|unlicense|copyright)")


def linked(metadata):
    """Packages that end up in the programs, and what each of them uses."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    root = next(p["id"] for p in packages.values() if p["name"] == ROOT and p["source"] is None)
    uses, todo = {}, [root]
    while todo:
        package = todo.pop()
        if package in uses:
            continue
        normal = [
            dep["pkg"]
            for dep in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"]) and not is_macro(packages[dep["pkg"]])
        ]
        uses[package] = normal
        todo += normal
    return root, packages, uses


def is_macro(package):
    """Macros run in the compiler."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    described = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if license := package["license"]:
        # Before there were expressions, a stroke stood for a choice.
        described["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", license)}]
    if checksum := checksums.get((package["name"], package["version"])):
        described["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if repository := package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": repository}]
    return described


def sbom(metadata, target, version, programs, checksums):
    root, packages, uses = linked(metadata)
    listed = sorted((id for id in uses if id != root), key=lambda id: purl(packages[id]))
    built = [
        {
            "type": "application",
            "bom-ref": f"program:{path.name}",
            "name": path.name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        }
        for path in sorted(programs.iterdir())
    ]
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": ROOT,
                "name": ROOT,
                "version": version,
                "licenses": [{"expression": packages[root]["license"]}],
                "components": built,
                "properties": [{"name": "strait:target", "value": target}],
            },
        },
        "components": [component(packages[id], checksums) for id in listed],
        "dependencies": [
            {
                "ref": ROOT if id == root else purl(packages[id]),
                "dependsOn": sorted({purl(packages[used]) for used in uses[id]}),
            }
            for id in [root, *listed]
        ],
    }
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    return document, [packages[id] for id in listed]


def licenses(packages):
    """Every text once, below the names of all it is of."""
    texts, without = {}, []
    for package in packages:
        if package["source"] is None:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        found = [path for path in sorted(folder.iterdir()) if path.is_file() and LICENSE_FILE.match(path.name)]
        title = f"{package['name']} {package['version']} ({package['license']})"
        for path in found:
            text = path.read_text(errors="replace").replace("\r\n", "\n").strip()
            texts.setdefault(text, []).append(title)
        if not found:
            without.append(title)
    rule = "=" * 80
    parts = [f"{rule}\n" + "\n".join(dict.fromkeys(of)) + f"\n{rule}\n\n{text}\n" for text, of in texts.items()]
    if without:
        parts.append(f"{rule}\nWithout a text of their own:\n" + "\n".join(without) + f"\n{rule}\n")
    return "\n".join(parts)


def main():
    metadata, target, version, programs, to, licenses_to = sys.argv[1:]
    lock = tomllib.loads(pathlib.Path("Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}
    metadata = json.loads(pathlib.Path(metadata).read_text())
    document, packages = sbom(metadata, target, version, pathlib.Path(programs), checksums)
    pathlib.Path(to).write_text(json.dumps(document, indent=2) + "\n")
    pathlib.Path(licenses_to).write_text(licenses(packages))


main()
