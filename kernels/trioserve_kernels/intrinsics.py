"""Instructions that Numba has no word for, given as LLVM code; for use inside kernels."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WIDTH = 8
_VECTOR = ir.VectorType(ir.FloatType(), _WIDTH)
_INDEX = ir.IntType(32)


def _float_of_bits(_typing_context: Any, bits: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


def _prefetch(_typing_context: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        address = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        # For reading (0), to the second-level cache (2), as data (1).
        flags = [ir.Constant(_INDEX, flag) for flag in (0, 2, 1)]
        takes = ir.FunctionType(ir.VoidType(), [address.type, _INDEX, _INDEX, _INDEX])
        name = "llvm.prefetch.p0i8"
        prefetch = builder.module.globals.get(name) or ir.Function(builder.module, takes, name)
        builder.call(prefetch, [address, *flags])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


def _transpose_8x8(
    _typing_context: Any,
    source: Any,
    source_start: Any,
    source_stride: Any,
    target: Any,
    target_start: Any,
    target_stride: Any,
) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def row_pointer(array: int, row: int) -> Any:
            data = context.make_array(signature.args[array])(context, builder, args[array]).data
            start, stride = args[array + 1], args[array + 2]
            offset = builder.add(start, builder.mul(stride, ir.Constant(stride.type, row)))
            return builder.bitcast(builder.gep(data, [offset]), _VECTOR.as_pointer())

        rows = [builder.load(row_pointer(0, row), align=4) for row in range(_WIDTH)]
        for distance in (1, 2, 4):
            rows = _swap_lanes(builder, rows, distance)
        for row in range(_WIDTH):
            builder.store(rows[row], row_pointer(3, row), align=4)
        return context.get_dummy_value()

    index = types.int64
    return types.void(source, index, index, target, index, index), generate


def _swap_lanes(builder: Any, rows: list[Any], distance: int) -> list[Any]:
    """One of the three rounds of a transposition: between rows that differ in one bit of their
    number, swap the lanes that differ in the same bit."""
    swapped = list(rows)
    for row in range(_WIDTH):
        if row & distance:
            continue
        low, high = rows[row], rows[row + distance]
        # In a shuffle lanes 0-7 are those of `low`, 8-15 those of `high`.
        of_low = [_WIDTH + i - distance if i & distance else i for i in range(_WIDTH)]
        of_high = [_WIDTH + i if i & distance else i + distance for i in range(_WIDTH)]
        swapped[row] = builder.shuffle_vector(low, high, _lanes(of_low))
        swapped[row + distance] = builder.shuffle_vector(low, high, _lanes(of_high))
    return swapped


def _lanes(indices: list[int]) -> Any:
    return ir.Constant(ir.VectorType(_INDEX, _WIDTH), [ir.Constant(_INDEX, i) for i in indices])


#: `float_of_bits(bits)`: the float32 whose IEEE 754 bits are this int32.
float_of_bits: Callable[[Any], Any] = intrinsic(_float_of_bits)

#: `prefetch(array, index)`: fetch the cache line of that element of a C-contiguous array.
prefetch: Callable[[Any, Any], None] = intrinsic(_prefetch)

#: `transpose_8x8(source, start, stride, target, start, stride)`: 8 rows of 8 float32, `stride`
#: elements apart from element `start` of a C-contiguous array, to the same form in another. Nothing
#: is checked. LLVM left to itself moves the elements one at a time, in five times the time.
transpose_8x8: Callable[[Any, Any, Any, Any, Any, Any], None] = intrinsic(_transpose_8x8)
