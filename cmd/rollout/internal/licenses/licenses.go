// Package licenses holds the licenses of the code in the binary other than this module: the modules
// that it links on Linux, macOS and Windows, and Go's standard library. `make licenses` regenerates
// the text from the module cache. The test fails if the text does not match go.mod, or if a license
// is not allowed.
package licenses

import _ "embed" // the texts

// Text lists each module with its path, its version, and its license and notice files, unchanged.
//
//go:embed licenses.txt
var Text string
