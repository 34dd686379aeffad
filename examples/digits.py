"""Learn to read handwritten digits, with Pellucid alone, in a few seconds on one core.

The data are 1797 pictures of 8 x 8 pixels that come with scikit-learn (E. Alpaydin and C. Kaynak,
"Optical recognition of handwritten digits", 1998). A third of them, equally many of each digit, is
held out: the network never sees it while it learns, and has to read at least 96 % of it.

    python examples/digits.py [--steps 600] [--device CPU:C]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sklearn.datasets import load_digits

from pellucid import Context, Tensor, jit, nn
from pellucid.core.observe import observed_by
from pellucid.core.options import current_options
from pellucid.tools.console import console as tool_console
from pellucid.tools.explain import times_table
from pellucid.tools.kernels import ScheduleCollector

LEAST_ACCURACY = 0.96
BATCH = 64
LEARNING_RATE = 0.01
HELD_OUT = 1 / 3
SEED = 7

Arrays = tuple[np.ndarray, np.ndarray]


class Network:
    """A small convolutional network: 16 features of 3 x 3 pixels, then one layer to 10 digits."""

    def __init__(self) -> None:
        self.features = nn.Conv2d(1, 16, 3, padding=1)
        self.output = nn.Linear(16 * 4 * 4, 10)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Give a score for each digit.  (batch, 1, 8, 8) -> (batch, 10)"""
        found = self.features(pixels).relu().max_pool2d(2)  # (batch, 16, 4, 4)
        scores: Tensor = self.output(found.flatten(1))
        return scores


def split_digits() -> tuple[Arrays, Arrays]:
    """Read the pictures, and hold out a third of each digit, chosen by a fixed seed."""
    pixels, labels = load_digits(return_X_y=True)
    pixels = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)  # 0 (white) to 1 (black)
    numbers = np.random.default_rng(SEED)
    is_held_out = np.zeros(len(labels), bool)
    for digit in range(10):
        places = numbers.permutation(np.flatnonzero(labels == digit))
        is_held_out[places[: round(len(places) * HELD_OUT)]] = True
    return (
        (pixels[~is_held_out], labels[~is_held_out].astype(np.int64)),
        (pixels[is_held_out], labels[is_held_out].astype(np.int64)),
    )


def learner(network: Network) -> Callable[[Tensor, Tensor], Tensor]:
    """Make the function that learns from one batch and gives its loss."""
    optimizer = nn.optim.Adam(nn.get_parameters(network), lr=LEARNING_RATE)

    @jit
    def learn(pixels: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = network(pixels).cross_entropy(labels)
        loss.backward()
        optimizer.step()
        return loss.realize()

    return learn


def train(
    learn: Callable[[Tensor, Tensor], Tensor], data: Arrays, steps: int, console: Console
) -> float:
    """Learn from *steps* random batches; return the last loss."""
    pixels, labels = data
    numbers = np.random.default_rng(SEED)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    loss = float("nan")
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("learning", total=steps)
        for step in range(steps):
            chosen = numbers.choice(len(labels), BATCH, replace=False)
            result = learn(Tensor(pixels[chosen]), Tensor(labels[chosen]))
            if step % 25 == 0 or step == steps - 1:
                loss = result.item()
                progress.update(task, description=f"learning, loss {loss:.4f}")
            progress.advance(task)
    return loss


def accuracy(network: Network, data: Arrays) -> float:
    """Count the share of pictures that are read right."""
    pixels, labels = data
    guesses = network(Tensor(pixels)).argmax(1).numpy()
    return float((guesses == labels).mean())


def show_data(console: Console, learned: Arrays, held_out: Arrays) -> None:
    """Say what there is to learn, and show one picture of it."""
    console.print("[bold]Handwritten digits[/]")
    console.print(f"  {len(learned[1])} pictures to learn from, {len(held_out[1])} held out")
    console.print(f"  the first that is held out, a {held_out[1][0]}:")
    for row in held_out[0][0, 0]:
        console.print("    " + "".join(" .:-=+*#%@"[int(dark * 9)] * 2 for dark in row))


def show_next(console: Console) -> None:
    """Say where to look next."""
    console.print("\n[bold]Where to look next[/] (commands are in .venv/bin)")
    console.print("  pellucid explain examples/first.py   your lines, every stage, source, time")
    console.print("  pellucid pipeline                    the compiler's table of contents")
    console.print("  pellucid laws                        what it rewrites, and how that is known")
    console.print("  make docs                            all as pages, a chapter for each stage")


def main() -> int:
    """Train, measure, show; return 0 when enough of the held-out pictures are read right."""
    given = _arguments()
    console = tool_console()
    learned, held_out = split_digits()
    show_data(console, learned, held_out)
    start = time.perf_counter()
    with Context(device=given.device):
        Tensor.manual_seed(SEED)
        network = Network()
        learn, collector = learner(network), ScheduleCollector()
        with observed_by(collector):
            loss = train(learn, learned, given.steps, console)
        seconds = time.perf_counter() - start
        share = accuracy(network, held_out)
        console.print("\n[bold]One step of learning[/]")
        console.print(times_table(collector.linears[-1:], given.device))
    is_enough = share >= LEAST_ACCURACY
    console.print("[bold]What happened[/]")
    console.print(f"  learned from {given.steps} batches of {BATCH} pictures on {given.device}")
    console.print(f"  in {seconds:.1f} s with compiling; the last loss is {loss:.4f}")
    verdict = "[green]enough[/]" if is_enough else "[red]too few[/]"
    console.print(f"  [bold]{share:.1%}[/] of the held-out pictures are read right: {verdict}")
    show_next(console)
    return 0 if is_enough else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
    parser.add_argument("--steps", type=int, default=600, help="batches to learn from (600)")
    parser.add_argument("--device", default=current_options().device, help="CPU, CPU:C, ...")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
