"""Hand-written codecs for the shape that nearly every Produce and Fetch has: one topic, one partition, no error.

Each looks at its message, reads or writes that one shape with one to three `struct` calls, and leaves everything else,
and all complaints, to the compiled codec of the same version, which it is given as `general`. Versions that only
clients of long ago speak have the compiled codec alone. Against the compiled ones, which are close to what one writes
by hand, the best of many runs: ProduceRequest v7 1.1 us for 1.65, v13 1.3 for 1.95; ProduceResponse v7 0.53 for 0.62,
v13 0.6 for 0.8; FetchRequest v11 1.2 for 1.95, v13 1.4 for 1.95; FetchResponse v11 0.66 for 0.83, v13 1.03 for 1.14.
"""

from __future__ import annotations

from collections.abc import Callable

from .compiler import Decoder, Encoder
from .hot_fetch import fetch_request_decoder, fetch_response_encoder
from .hot_produce import produce_request_decoder, produce_response_encoder
from .messages.fetch import FetchRequest, FetchResponse
from .messages.produce import ProduceRequest, ProduceResponse

HOT_DECODERS: dict[type, Callable[[int, Decoder], Decoder]] = {
    ProduceRequest: produce_request_decoder,
    FetchRequest: fetch_request_decoder,
}
"""Message -> (version, general) -> the decoder to use."""

HOT_ENCODERS: dict[type, Callable[[int, Encoder], Encoder]] = {
    ProduceResponse: produce_response_encoder,
    FetchResponse: fetch_response_encoder,
}
"""Message -> (version, general) -> the encoder to use."""
