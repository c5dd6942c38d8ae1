#include "cli/program.h"

int main(int argc, char** argv) { return co2::cli::run_program({argv + 1, argv + argc}); }
