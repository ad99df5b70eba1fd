// Package killpoint names the places at which a test ends the program as a power cut or kill -9
// would. It does not know what the program does there.
//
// A program that is built without the tag killpoints has none of it.
package killpoint
