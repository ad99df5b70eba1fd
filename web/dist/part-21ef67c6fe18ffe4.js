import{a,b,c}from"./part-de77b8783db1dcc2.js";import"./part-ec4aa99893272bcf.js";export{b as EditRule,a as Rules,c as Vacation};
