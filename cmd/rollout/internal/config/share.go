package config

import (
	"io/fs"
)

// Share is who else may read what a run writes: prompts, answers and metadata are private
// until somebody says otherwise.
type Share string

// The values of output.share.
const (
	ShareNone  Share = "none"
	ShareGroup Share = "group"
	ShareAll   Share = "all"
)

// FileMode is that of the files of a run, before the umask. A folder is like its files,
// and may be entered by who may read it.
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

// FolderMode is the mode of a folder for files of a mode.
func FolderMode(files fs.FileMode) fs.FileMode { return files | files&0o444>>2 }

// ShareOf is the setting of a run that does not say: what its folder shows. Its readers
// are not locked out.
func ShareOf(folder fs.FileInfo) Share {
	switch mode := folder.Mode().Perm(); {
	case mode&0o004 != 0:
		return ShareAll
	case mode&0o040 != 0:
		return ShareGroup
	}
	return ShareNone
}
