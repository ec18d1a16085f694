// Package licenses holds the licenses of the code in the binary other than this module: Go's
// standard library and the modules that the binary links on Linux, macOS and Windows. `make
// licenses` regenerates the text from the module cache. The test fails if the text does not match
// go.mod, or if a license is not allowed.
package licenses

import _ "embed" // for the text below

// Text lists each module with its path, its version, and its license and notice files, unchanged.
//
//go:embed licenses.txt
var Text string
