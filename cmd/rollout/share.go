package main

import "io/fs"

// Who else may read what a run writes: prompts, answers and metadata are private until
// somebody says otherwise.
const (
	shareNone  = "none"
	shareGroup = "group"
	shareAll   = "all"
)

// sharedAs sets who may read.
func (c *config) sharedAs(share string) *config {
	c.Output.Share = share
	return c
}

// fileMode is that of the files of a run, before the umask. A folder is like its files,
// and may be entered by who may read it.
func (c *config) fileMode() fs.FileMode {
	switch c.Output.Share {
	case shareGroup:
		return 0o640
	case shareAll:
		return 0o644
	}
	return 0o600
}

// folderMode is the mode of a folder for files of a mode.
func folderMode(files fs.FileMode) fs.FileMode { return files | files&0o444>>2 }

// shareOf is the setting of a run that does not say: what its folder shows. Its readers
// are not locked out.
func shareOf(folder fs.FileInfo) string {
	switch mode := folder.Mode().Perm(); {
	case mode&0o004 != 0:
		return shareAll
	case mode&0o040 != 0:
		return shareGroup
	}
	return shareNone
}
