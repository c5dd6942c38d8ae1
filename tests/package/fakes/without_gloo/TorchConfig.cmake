# A LibTorch that is new enough, but whose libraries hold no process group.
set(TORCH_INSTALL_PREFIX "${CMAKE_CURRENT_LIST_DIR}")
set(TORCH_INCLUDE_DIRS "")
add_library(torch INTERFACE IMPORTED)
set(Torch_FOUND TRUE)
