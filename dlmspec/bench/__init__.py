"""Measures, parity gate, tables and plots. `run_bench` is the only way speed is reported."""

from dlmspec.bench.gate import exit_status
from dlmspec.bench.plan import BenchPlan
from dlmspec.bench.rows import BenchRow
from dlmspec.bench.run import run_bench

__all__ = ["BenchPlan", "BenchRow", "exit_status", "run_bench"]
