"""Several kernels in one text: every function is there, and what they share is there once."""

from __future__ import annotations

import numpy as np
import pytest

from pellucid import Context, Tensor, pipeline
from pellucid.core.errors import CompileError
from pellucid.render.join import join_c, join_llvm


def test_attribute_groups_are_numbered_anew() -> None:
    texts = [
        f"define void @{name}() #0 {{\n  ret void\n}}\nattributes #0 = {{ {group} }}\n"
        for name, group in (("a", "nounwind"), ("b", "nounwind cold"), ("c", "nounwind"))
    ]
    joined = join_llvm(texts)
    assert joined.count("attributes") == 2
    assert "@a() #0" in joined
    assert "@b() #1" in joined
    assert "@c() #0" in joined


def test_helpers_and_types_stand_once() -> None:
    def text(name: str, types: str) -> str:
        return (
            f"/* {name} */\n\n#include <stdint.h>\n\n{types}\n\n"
            f"static int help(int x)\n{{\n    return x;\n}}\n\nvoid {name}(void)\n{{\n}}\n"
        )

    first = text("a", "typedef int one;\ntypedef int two;")
    second = text("b", "typedef int two;\ntypedef int three;")
    joined = join_c([first, second], ["a", "b"])
    for once in ("#include", "static int help", "int one;", "int two;", "int three;"):
        assert joined.count(once) == 1, joined
    assert "void a(void)" in joined
    assert "void b(void)" in joined


@pytest.mark.parametrize("device", ["CPU:LLVM", "CPU:C"])
def test_a_schedule_is_one_module(device: str) -> None:
    rng = np.random.default_rng(5)
    data = rng.random((24, 24), dtype=np.float32) * np.float32(0.2)
    before = pipeline.statistics.modules, pipeline.statistics.compiled
    with Context(cache_dir=""):
        x = Tensor(data, device=device)
        a = (x @ x + 0.37).contiguous()
        b = (a @ x - 0.73).contiguous()  # kernels with one shape have one name
        c = (b.exp().sum(1) + 0.11).contiguous()
        c.realize(a, b)
    assert pipeline.statistics.modules == before[0] + 1
    assert pipeline.statistics.compiled >= before[1] + 3
    first = data @ data + np.float32(0.37)
    second = first @ data - np.float32(0.73)
    np.testing.assert_allclose(a.numpy(), first, rtol=1e-5)
    np.testing.assert_allclose(b.numpy(), second, rtol=1e-5)
    np.testing.assert_allclose(c.numpy(), np.exp(second).sum(1) + 0.11, rtol=1e-4)


def test_a_module_that_is_refused_names_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = pipeline.renderer_for("CPU")
    real = type(renderer).render

    def broken(self: object, linear: object, info: object) -> str:
        text: str = real(self, linear, info)  # type: ignore[arg-type]
        return text.replace("ret void", "ret nothing") if "fdiv" in text else text

    monkeypatch.setattr(type(renderer), "render", broken)
    x = Tensor([1.0, 2.0, 3.0]).realize()
    good, bad = (x * 91.5).contiguous(), (x.reshape(3, 1) / x.sum() - 91.25).contiguous()
    with Context(cache_dir=""), pytest.raises(CompileError) as caught:
        good.realize(bad)
    assert caught.value.kernel
