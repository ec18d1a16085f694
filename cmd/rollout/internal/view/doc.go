// Package view shows a run in a browser: the report, the list of all samples, and each sample with
// its conversation and its tokens.
//
//	runs.Run ──► Open ──► View ──► Serve   the page on 127.0.0.1, and its data on request
//	                        └────► Write   one file with the report and at most 200 samples
//
// A View reads only facts of the rows when it opens a run, and keeps them in columns: about 150
// bytes per sample. It reads the tokens of a sample when the page asks for them. The page gets the
// columns of all samples, and filters and sorts by itself. Package web has the page.
package view
