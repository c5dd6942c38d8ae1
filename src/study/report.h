#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "study/findings.h"
#include "study/study_file.h"

namespace co2::study {

/// Tables for people: what each row reached and whether that differs from its reference, what was chosen and by how
/// many trials, and what is missing.
std::string report_text(const StudyFile& file, const Findings& findings);

/// The same as a section of a Markdown document.
std::string report_markdown(const StudyFile& file, const Findings& findings);

nlohmann::ordered_json report_json(const StudyFile& file, const Findings& findings);

}  // namespace co2::study
