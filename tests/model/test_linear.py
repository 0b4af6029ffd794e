"""The linear layer by oneDNN gives what torch's gives, forward and back, and meets few numbers of rows."""

import pytest
import torch
from torch import Tensor, nn

from repro.model import linear as module
from repro.model.linear import STEP, linear


@pytest.mark.parametrize("num_rows", [1, STEP - 1, STEP, STEP + 44, 3 * STEP])
@pytest.mark.parametrize("has_bias", [True, False])
def test_rows_and_gradients_are_those_of_torch(num_rows: int, has_bias: bool) -> None:
    torch.manual_seed(0)
    layer, rows_TI = nn.Linear(24, 40, bias=has_bias), torch.randn(num_rows, 24, requires_grad=True)
    sent_TO, leaves = torch.randn(num_rows, 40), [rows_TI, *layer.parameters()]
    expected_TO, found_TO = layer(rows_TI), linear(rows_TI, layer)
    torch.testing.assert_close(found_TO, expected_TO, rtol=1e-5, atol=1e-5)
    expected, found = (torch.autograd.grad(given, leaves, sent_TO) for given in (expected_TO, found_TO))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    (of_a_sum,) = torch.autograd.grad(linear(rows_TI, layer).sum(), rows_TI)
    torch.testing.assert_close(of_a_sum, layer.weight.sum(0).expand(num_rows, -1), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not module.has_onednn(), reason="this torch has no such kernel")
def test_the_kernel_meets_multiples_of_a_step_only(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[int] = []
    real = module._product

    def product(rows_TI: Tensor, *given: Tensor | None) -> Tensor:
        met.extend(rows_TI.shape)
        return real(rows_TI, *given)

    monkeypatch.setattr(module, "_product", product)
    layer = nn.Linear(STEP, 2 * STEP)
    for num_rows in (STEP - 3, STEP + 1, 700, 701, 1000):
        linear(torch.randn(num_rows, STEP, requires_grad=True), layer).sum().backward()
    assert len(met) == 4 * 3 * 2 and not any(size % STEP for size in met)
