// Package killpoint names the points at which a test can kill the program, as a power cut or kill
// -9 would. It does not know what the program does there.
//
// Without the build tag killpoints, the points do nothing.
package killpoint
