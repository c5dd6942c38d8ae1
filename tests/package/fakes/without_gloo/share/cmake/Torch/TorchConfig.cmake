# A LibTorch that is new enough, but has no libraries with process groups.
message(FATAL_ERROR "there is no need to run this")
