from typing import TypedDict

class BuildInfo(TypedDict):
    version: str
    torch: str
    compiler: str
    cuda: bool
    cxx11_abi: bool

def build_info() -> BuildInfo: ...
