# A LibTorch of long ago, as far as find_package can tell (see TorchConfigVersion.cmake).
message(FATAL_ERROR "there is no need to run this")
