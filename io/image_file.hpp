// Images as 8-bit RGB PNG files and contact sheets. Values outside [0, 1] are clamped; 255 x is rounded to nearest,
// halves to even.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/image.hpp"

namespace spotlight {

// `text_chunks`: keyword (1 to 79 Latin letters) -> UTF-8 text, stored as iTXt (PNG 1.2, section 4.2.3.3).
void WritePng(const std::string& path, const Image& image, const std::map<std::string, std::string>& text_chunks);

// FileError if it is not a PNG file.
Image ReadPng(const std::string& path);
std::map<std::string, std::string> ReadPngText(const std::string& path);

// A contact sheet: `columns` pictures a row, each magnified `scale` times (nearest), its caption below in a 5x7 font,
// wrapped at words. captions[i] belongs to images[i]; characters outside printable ASCII show as '?'. The captions are
// also in the text chunk "captions", one a line.
void WriteGrid(const std::string& path, const std::vector<Image>& images, const std::vector<std::string>& captions,
               int columns, int scale);
// For images of that width: small ones are magnified, so that people see them.
int GridScale(int width);

}  // namespace spotlight
