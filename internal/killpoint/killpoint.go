// Package killpoint lets a test kill the program at a named point in the code, as `kill -9` would.
// It does not know what the program does there.
//
// It does nothing unless the program is built with the tag killpoints.
package killpoint
