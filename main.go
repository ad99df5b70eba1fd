// Command mailstead is self-hosted email infrastructure in one binary.
package main

func main() {}
