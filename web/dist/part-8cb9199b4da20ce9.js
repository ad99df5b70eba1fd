import{a,b,c}from"./part-1e88d881a1169522.js";import"./part-ec4aa99893272bcf.js";export{b as EditRule,a as Rules,c as Vacation};
