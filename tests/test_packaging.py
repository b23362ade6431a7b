"""What is importable from where.

Catches: a root `kernels` or `models` package that shadows others, transformers imported by `import dlmspec`, shipped
models missing from a wheel, transformers broken when the PyPI package `kernels` is installed, results of an installed
package that name the commit of the checkout around it, results that name a GPU which was not used.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from dlmspec import provenance
from dlmspec.order.model import OrderConfig, OrderModel, num_parameters

ROOT = Path(__file__).parent.parent


def test_root_folders_are_no_packages():
    assert not (ROOT / "kernels" / "__init__.py").exists()
    assert not (ROOT / "models" / "__init__.py").exists()


def test_import_is_light():
    code = "import sys, dlmspec; assert 'transformers' not in sys.modules and 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_transformers_imports_from_the_root_beside_the_kernels_package(tmp_path):
    """The PyPI package `kernels` is a regular package: it must win over the root folder of that name."""
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "__init__.py").write_text("class CUDAProperties: ...\nWHERE = 'pypi'\n")
    code = "import kernels; assert kernels.WHERE == 'pypi'"
    run = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; sys.path.append({str(tmp_path)!r}); {code}"
    subprocess.run([sys.executable, "-c", run], check=True, cwd=ROOT)
    subprocess.run([sys.executable, "-c", "from transformers import Qwen3ForCausalLM"], check=True, cwd=ROOT)


def test_an_installed_package_names_no_commit(monkeypatch, tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=n@localhost"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "another project"], check=True)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "site-packages" / "dlmspec" / "provenance.py"))
    (tmp_path / "site-packages").mkdir()
    assert provenance.git_commit() is None
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "dlmspec" / "provenance.py"))
    assert provenance.git_commit()


def test_results_name_the_device_that_was_used(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert "GPU" not in provenance.build_meta(torch.device("cpu"))["device"]
    assert "GPU" not in provenance.build_meta()["device"]
    assert provenance.build_meta(torch.device("cuda:1"))["device"] == "GPU 1"


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_the_shipped_models(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dlmspec"}
    for needed in (
        "_shipped/pocket/model.safetensors",
        "_shipped/pocket/tokenizer.json",
        "_shipped/pocket-spot/calibration.json",
        "bench/prompts/math.jsonl",
    ):
        assert f"dlmspec/{needed}" in names
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = "import dlmspec; assert dlmspec.load('pocket').target.tokenizer_path.parent.name == '_shipped'"
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"], check=True, cwd=tmp_path
    )


def test_the_example_runs_as_written():
    run = subprocess.run(
        [sys.executable, "examples/quickstart.py"], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert "identical to plain decoding: 100%" in run.stdout


def test_no_document_holds_a_placeholder():
    texts = [path.read_text() for path in (ROOT / "README.md", *ROOT.glob("models/*/README.md"))]
    assert len(texts) >= 3
    assert not any(re.search("@[A-Z]+@", text) for text in texts)
    assert f"{num_parameters(OrderModel(OrderConfig())):,}" in texts[0]
