#pragma once

#include <string>

#include "study/findings.h"
#include "study/study_file.h"
#include "train/task_type.h"

namespace co2::study {

/// A picture in SVG: training loss against samples and, if the study names a link, against time on it. Lines are means
/// over seeds, bands one standard deviation.
std::string chart(const StudyFile& file, const Findings& findings, const train::TaskWords& words);

}  // namespace co2::study
