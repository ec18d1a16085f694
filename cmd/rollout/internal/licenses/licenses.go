// Package licenses contains the licenses of the code in the binary that is not part of this module.
// This code is Go's standard library and the modules that the binary links on Linux, macOS and
// Windows. `make licenses` regenerates the text from the module cache. The test fails if the text
// does not match go.mod, or if a license is not allowed.
package licenses

import _ "embed" // for embedding the text below

// Text lists the path and version of each module, followed by its unchanged license and notice
// files.
//
//go:embed licenses.txt
var Text string
