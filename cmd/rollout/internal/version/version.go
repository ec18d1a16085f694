// Package version describes the source from which this binary was built.
package version

import (
	"runtime"
	"runtime/debug"
)

// Number is the version of the program and of its Python package (sink/python/pyproject.toml).
const Number = "0.1.0"

// A Build describes the source and the platform of this binary.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read returns the build information that is stored in the binary.
func Read() Build {
	v := Build{Version: Number, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
