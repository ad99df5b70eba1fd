import{a,b,c}from"./part-14faec795fa89767.js";import"./part-0342ebdaeb788082.js";export{b as EditRule,a as Rules,c as Vacation};
