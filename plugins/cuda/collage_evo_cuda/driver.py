"""CUDA's driver library by ctypes. Its functions return only on success."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from collage_evo.errors import CollageError, UnavailableError

LIBRARY = "libcuda.so.1"
OUT_OF_MEMORY = 2
_NO_DEVICE = 100

_TO_INT, _TO_HANDLE, _TO_ADDRESS = POINTER(c_int), POINTER(c_void_p), POINTER(c_uint64)
# Names as in the library: cuda.h writes some without their _v2, but in the library those are older functions.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_TO_INT,),
    "cuDeviceGetCount": (_TO_INT,),
    "cuDeviceGet": (_TO_INT, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_TO_INT, c_int, c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_TO_HANDLE, c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (_TO_ADDRESS, c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemAllocHost_v2": (_TO_HANDLE, c_size_t),
    "cuMemFreeHost": (c_void_p,),
    "cuPointerGetAttribute": (c_void_p, c_int, c_uint64),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
    "cuStreamCreate": (_TO_HANDLE, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _TO_HANDLE),
    "cuGraphInstantiateWithFlags": (_TO_HANDLE, c_void_p, c_uint64),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuEventCreate": (_TO_HANDLE, c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}


class CudaError(CollageError):
    """An error of the driver: its name, its meaning, and the call that returned it.

    Attributes:
        code: CUDA's number of the error.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Driver:
    """The initialised driver. ``driver.cuStreamSynchronize(...)`` is that function of the library.

    Raises:
        UnavailableError: there is no driver, or it has no device; the message names what is missing.
    """

    def __init__(self, path: str) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError:
            raise UnavailableError("the NVIDIA driver's libcuda.so.1 is not installed") from None
        count = c_int()
        try:
            self.cuInit(0)
            self.cuDeviceGetCount(count)
        except CudaError as error:
            if error.code != _NO_DEVICE:
                raise UnavailableError(f"the NVIDIA driver does not start ({error})") from None
        if count.value == 0:
            raise UnavailableError("the NVIDIA driver finds no device")

    def __getattr__(self, name: str) -> Any:
        if name not in _ARGUMENTS:
            raise AttributeError(name)
        function = getattr(self.library, name, None)
        if function is None:
            raise UnavailableError(f"the NVIDIA driver is too old: it has no {name}")
        function.argtypes, function.restype = _ARGUMENTS[name], c_int
        function.errcheck = lambda code, _, __: self.check(code, name) if code else None
        setattr(self, name, function)
        return function

    def check(self, code: int, name: str) -> None:
        """Raise the error that the function of that name returned, if any.

        Raises:
            CudaError: ``code`` is an error.
        """
        if code == 0:
            return
        texts = []
        for describe in (self.library.cuGetErrorName, self.library.cuGetErrorString):
            text = c_char_p()
            describe(code, ctypes.byref(text))
            texts.append((text.value or b"").decode(errors="replace"))
        raise CudaError(code, f"{texts[0] or f'CUDA error {code}'}: {texts[1] or 'unknown'} ({name})")

    def version(self) -> int:
        """The driver's version of CUDA: a thousand times the major number, and ten times the minor one."""
        number = c_int()
        self.cuDriverGetVersion(number)
        return number.value

    def device(self) -> int:
        """The driver's number of the first GPU."""
        number = c_int()
        self.cuDeviceGet(number, 0)
        return number.value

    def name(self) -> str:
        """Model of the first GPU."""
        text = ctypes.create_string_buffer(256)
        self.cuDeviceGetName(text, len(text), self.device())
        return text.value.decode(errors="replace")

    def attribute(self, which: int) -> int:
        """An attribute of the first GPU, by its number in cuda.h."""
        value = c_int()
        self.cuDeviceGetAttribute(value, which, self.device())
        return value.value


@cache
def cuda_driver() -> Driver:
    """The driver of this machine.

    Raises:
        UnavailableError: there is none, or it has no device; the message names what is missing.
    """
    return Driver(LIBRARY)
