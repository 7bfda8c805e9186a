"""The decision of `failOnDataLoss`: missing records fail the query, or are skipped with a warning."""

from __future__ import annotations

from functools import partial

from ..arrow.data_loss import report_loss as report_arrow_loss

LOSS_OPTION = "failOnDataLoss"

report_loss = partial(report_arrow_loss, option=LOSS_OPTION)
