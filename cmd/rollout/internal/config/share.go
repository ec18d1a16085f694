package config

import (
	"io/fs"
)

// Share is who else can read the files of a run. Prompts, answers and metadata are private by
// default.
type Share string

// Values of output.share.
const (
	ShareNone  Share = "none"
	ShareGroup Share = "group"
	ShareAll   Share = "all"
)

// FileMode returns the mode of a run's files, before the umask.
func (s Share) FileMode() fs.FileMode {
	switch s {
	case ShareGroup:
		return 0o640
	case ShareAll:
		return 0o644
	default:
		return 0o600
	}
}

// FolderMode returns the mode of a folder for files with the given mode: readers can also enter it.
func FolderMode(files fs.FileMode) fs.FileMode { return files | files&0o444>>2 }

// ShareOf derives the setting from the mode of a run's folder, so that current readers keep access.
func ShareOf(folder fs.FileInfo) Share {
	switch mode := folder.Mode().Perm(); {
	case mode&0o004 != 0:
		return ShareAll
	case mode&0o040 != 0:
		return ShareGroup
	}
	return ShareNone
}
