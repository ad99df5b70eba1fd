import{a,b,c}from"./part-c6325e29db7d7430.js";import"./part-c8ac30e112453393.js";export{b as EditRule,a as Rules,c as Vacation};
