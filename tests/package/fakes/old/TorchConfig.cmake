# A LibTorch of long ago, as far as find_package can tell (see TorchConfigVersion.cmake).
set(TORCH_INCLUDE_DIRS "")
add_library(torch INTERFACE IMPORTED)
set(Torch_FOUND TRUE)
